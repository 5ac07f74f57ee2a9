/* Then accounts are read, and now and then an amount is added. */
Action()
{
    web_add_header("Authorization", "Bearer {token}");
    web_reg_find("Text=balance", LAST);
    web_url("account", "URL={bank}/accounts/{account}", "Mode=HTTP", LAST);

    if (atoi(lr_eval_string("{percent}")) <= 10) {
        web_add_header("Authorization", "Bearer {token}");
        web_submit_data("add", "Action={bank}/add", "Method=POST", "Mode=HTTP", ITEMDATA,
                        "Name=account", "Value={account}", ENDITEM,
                        "Name=amount", "Value=1", ENDITEM, LAST);
    }
    return 0;
}
